-- Which server is it, does another one hand out ids, too, and can an insert wait between its id and its place on the list of transactions? What a
-- server does not know is left out.
SHOW GLOBAL VARIABLES WHERE variable_name IN ('hostname', 'port', 'server_id', 'server_uuid', 'auto_increment_increment', 'wsrep_on', 'innodb_max_purge_lag',
    'innodb_thread_concurrency')
