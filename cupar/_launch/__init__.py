"""How kernels are launched: arguments read and packed, plans enqueued, as graphs or one by one."""
