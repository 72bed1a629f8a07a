"""How the coordinator and its workers talk: messages over connections that both ends have proved a token on."""
