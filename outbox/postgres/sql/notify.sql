-- Tell all who listen; see outbox.Announcement. $1 channel, $2 text
SELECT pg_notify($1, $2)
