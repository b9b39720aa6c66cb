-- How long a client may be silent while its transaction holds a lock that others need: for seconds, not for the hours after which TCP
-- gives a connection up. A client that is gone in the middle of a pipeline is in no transaction that is idle; so the server asks
-- whether it is there, and gives up sending to one that does not read (Linux). From PostgreSQL 17 on it ends what goes on for
-- too long, whoever is to blame. It is set together with the lock, since a pooler refuses such parameters when a session starts.
set_config('idle_in_transaction_session_timeout', '10s', true)
|| {{include part_keepalive}}
|| CASE WHEN version() LIKE '%linux%' THEN set_config('tcp_user_timeout', '15s', true) ELSE '' END
|| CASE WHEN current_setting('server_version_num')::int >= 170000 THEN set_config('transaction_timeout', '30s', true) ELSE '' END
