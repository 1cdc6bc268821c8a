"""The stock firmware as a USB mass storage device: SCSI over Bulk-Only and UAS, and its vendor commands.

The stock firmware and the mask ROM import it.
"""
