-- How the server and the session are set. What a server does not know is left out.
SHOW VARIABLES WHERE variable_name IN ('version', 'version_comment', 'sql_mode', 'autocommit', 'character_set_client', 'max_allowed_packet', 'read_only',
    'log_bin', 'binlog_format', 'sync_binlog', 'innodb_flush_log_at_trx_commit', 'innodb_read_only', 'transaction_isolation', 'tx_isolation',
    'time_zone', 'wsrep_on', 'group_replication_single_primary_mode', 'innodb_rollback_on_timeout', 'wait_timeout', 'completion_type', 'sql_select_limit')
