-- Which server is it, and who else hands out ids? What a server does not know is left out.
SHOW GLOBAL VARIABLES WHERE variable_name IN ('hostname', 'port', 'server_id', 'server_uuid', 'auto_increment_increment', 'wsrep_on')
