-- The number of this session: see lowwater.go
(SELECT hashtextextended(pid || ' ' || extract(epoch FROM backend_start), 0) FROM pg_stat_activity WHERE pid = pg_backend_pid())
