-- Plan: two range scans of {{name}}_finished, backwards: any number of rows can have finished at the instant where the page before ended, and its
-- entries end with the id, by which the table is clustered.
DECLARE @after_at datetime2(6) = CASE WHEN @after = N'' THEN '9999-12-31T23:59:59.999999' ELSE CONVERT(datetime2(6), @after, 126) END;
INSERT INTO @seen (place, id, at)
SELECT ROW_NUMBER() OVER (ORDER BY f.finished_at DESC, f.id DESC), f.id, f.finished_at
  FROM (SELECT TOP (@scan + 1) ended.id, ended.finished_at
          FROM (SELECT tied.id, tied.finished_at
                  FROM (SELECT TOP (@scan + 1) m.id, m.finished_at
                          FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.status = @status AND m.finished_at IS NOT NULL
                           AND m.finished_at = @after_at AND m.id < @after_id
                         ORDER BY m.id DESC) AS tied
                 UNION ALL
                SELECT older.id, older.finished_at
                  FROM (SELECT TOP (@scan + 1) m.id, m.finished_at
                          FROM {{table}} AS m WITH (INDEX({{name}}_finished), FORCESEEK, READCOMMITTEDLOCK, READPAST, ROWLOCK)
                         WHERE m.target_broker = @broker AND m.status = @status AND m.finished_at IS NOT NULL AND m.finished_at < @after_at
                         ORDER BY m.finished_at DESC, m.id DESC) AS older) AS ended
         ORDER BY ended.finished_at DESC, ended.id DESC) AS f;
