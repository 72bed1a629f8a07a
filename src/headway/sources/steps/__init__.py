"""What training logs have in common: lines that tell of steps, put together to runs."""
