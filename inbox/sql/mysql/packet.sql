-- How large a statement may be, in bytes.
SELECT @@max_allowed_packet
