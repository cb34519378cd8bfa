"""Users' kernels: types of their arguments, builds and launches."""
