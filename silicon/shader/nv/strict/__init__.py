"""Rules that need a warp's history: results in flight, stall counts, registers that were never written."""
