-- Tell all who listen; see outbox.Notification. It does not wait for the disk: a notification does not outlive the server anyway.
-- $1 channel, $2 text
SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)
