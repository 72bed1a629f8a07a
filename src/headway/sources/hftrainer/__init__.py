"""`trainer_state.json` of the Hugging Face Trainer."""
