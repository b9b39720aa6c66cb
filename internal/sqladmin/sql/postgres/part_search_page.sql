-- One page of a search, newest first, of one broker or all. The range of hashes is one or all of them: it is a condition of the index, which OR would not be.
   AND m.id + 0 < @after_id AND (@broker::text = '' OR m.target_broker = @broker)
   AND (hashtext(m.target_broker) % 32767)::smallint BETWEEN (CASE @broker::text WHEN '' THEN -32768 ELSE hashtext(@broker) % 32767 END)::smallint
                                                         AND (CASE @broker::text WHEN '' THEN 32767 ELSE hashtext(@broker) % 32767 END)::smallint
 ORDER BY m.id + 0 DESC
 LIMIT @limit
