"""What only lowers to XNNPACK: a wheel that only runs programs leaves this folder out."""
