"""The stock firmware as a USB mass storage device: SCSI over Bulk-Only and UAS, and its vendor commands.

Imported by the stock firmware and the mask ROM.
"""
