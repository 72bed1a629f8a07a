"""Event files of TensorBoard."""
