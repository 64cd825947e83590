"""What only lowers to Neutron: a wheel that only runs programs leaves this folder out."""
