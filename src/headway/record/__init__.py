"""In the training process: cheap, durable, never raises."""
