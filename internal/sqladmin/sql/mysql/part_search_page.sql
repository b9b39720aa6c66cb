-- One page of a search, newest first.
   AND (@broker = '' OR m.target_broker = @broker)
 ORDER BY m.id DESC
 LIMIT @limit
