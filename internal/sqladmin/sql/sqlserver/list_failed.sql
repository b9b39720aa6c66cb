-- One page of failed rows, deferred or not.
-- Plan: a range scan of {{name}}_failing, backwards.
{{include part_list_begin}}
INSERT INTO @seen (place, id)
SELECT ROW_NUMBER() OVER (ORDER BY f.id DESC), f.id
  FROM (SELECT TOP (@scan + 1) m.id
          FROM {{table}} AS m WITH (INDEX({{name}}_failing), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
         WHERE m.target_broker = @broker AND m.last_error IS NOT NULL AND m.finished_at IS NULL AND m.id < @after_id
         ORDER BY m.id DESC) AS f;
{{include part_list_end}}
