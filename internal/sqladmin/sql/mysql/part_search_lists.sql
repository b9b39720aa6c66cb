-- One page of a search within lists, in their order: by broker, by status, and then as part of each list: by the time at which rows were finished and by id,
-- both descending. @broker or '', @statuses, what part_matches.sql uses; @after_broker, @after_rank of the status, @after and @after_row: the place behind which to
-- read; @limit
   AND {{include part_matches}}
   AND JSON_CONTAINS(@statuses, JSON_QUOTE(m.status))
   AND (LENGTH(@broker) = 0 OR m.target_broker = @broker)
   AND (m.target_broker > @after_broker OR m.target_broker = @after_broker AND ({{include part_status_rank}} > @after_rank
        OR {{include part_status_rank}} = @after_rank
           AND (@after IS NULL AND m.finished_at IS NOT NULL OR m.finished_at < @after OR (m.finished_at IS NULL OR m.finished_at = @after) AND m.id < @after_row)))
 ORDER BY m.target_broker, {{include part_status_rank}}, m.finished_at DESC, m.id DESC
 LIMIT @limit
