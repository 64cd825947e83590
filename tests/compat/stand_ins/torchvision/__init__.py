"""What the scripts use of torchvision, on the models of `examples/models`."""
