"""What only lowers to Ethos-U: a wheel that only runs programs leaves this folder out."""
