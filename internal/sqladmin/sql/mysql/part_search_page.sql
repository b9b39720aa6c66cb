-- One page of a search, newest first.
   AND (LENGTH(@broker) = 0 OR m.target_broker = @broker)
 ORDER BY m.id DESC
 LIMIT @limit
