-- The number of this session, any one where its role may not see when it began: see lowwater.go
(SELECT hashtextextended(pid || ' ' || extract(epoch FROM backend_start), 0) FROM pg_stat_activity WHERE pid = pg_backend_pid()), (random() * 4611686018427387904)::bigint
