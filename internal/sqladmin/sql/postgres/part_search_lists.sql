-- One page of a search within lists, in their order: by broker, by status, and then as part of each list: by the time at which rows were finished and by id,
-- both descending. @broker or '', @statuses, what part_matches.sql uses; @after_broker, @after_rank of the status, @after and @after_row: the place behind which to
-- read; @limit
   AND {{include part_matches}}
   AND m.status = ANY (@statuses::text[])
   AND (@broker::text = '' OR m.target_broker = @broker)
   AND (m.target_broker > @after_broker::text COLLATE "C" OR m.target_broker = @after_broker AND ({{include part_status_rank}} > @after_rank::int
        OR {{include part_status_rank}} = @after_rank
           AND (@after::timestamptz IS NULL AND coalesce(m.published_at, m.finished_at) IS NOT NULL OR coalesce(m.published_at, m.finished_at) < @after::timestamptz
                OR (coalesce(m.published_at, m.finished_at) IS NULL OR coalesce(m.published_at, m.finished_at) = @after::timestamptz) AND m.id < @after_row::bigint)))
 ORDER BY m.target_broker COLLATE "C", {{include part_status_rank}}, coalesce(m.published_at, m.finished_at) DESC, m.id DESC
 LIMIT @limit
