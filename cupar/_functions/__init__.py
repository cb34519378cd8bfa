"""Arrays in, arrays out: the functions of `cupar.arrays`, on top of the algorithms' factories."""
