-- The numbers of the sessions of this role that are alive: see lowwater.go
SELECT hashtextextended(pid || ' ' || extract(epoch FROM backend_start), 0) FROM pg_stat_activity
