-- The server asks a client of whom it has heard nothing for five seconds whether it is there, and gives it up after nine more. Over a Unix
-- socket there is nothing to ask: the kernel tells.
set_config('tcp_keepalives_idle', '5', true)
|| set_config('tcp_keepalives_interval', '3', true)
|| set_config('tcp_keepalives_count', '3', true)
