// Scans that link quickly, of whatever can be read and written.
#include "scan_lookback.cuh"

CUPAR_FACTS(policy.threads_per_block, policy.items_per_thread, states::description_bytes_per_tile,
            states::payload_bytes_per_tile)
