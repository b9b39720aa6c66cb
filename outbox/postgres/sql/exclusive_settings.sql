-- Settings of the transaction that has the lock of an exclusive task, and is idle for as long as that runs: the server does not end it for that, but for a
-- process that is gone the next one does not wait for the hours after which TCP gives up.
SELECT set_config('idle_in_transaction_session_timeout', '0', true)
     , {{include part_keepalive}}
     , CASE WHEN current_setting('server_version_num')::int >= 170000 THEN set_config('transaction_timeout', '0', true) END
