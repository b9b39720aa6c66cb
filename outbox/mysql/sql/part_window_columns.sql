id, ordering_key, crashes
                  , status = 'processing' AS leased
                  , COALESCE(locked_until > UTC_TIMESTAMP(6), FALSE) AS waits
                  , CASE WHEN @sized THEN LENGTH(payload) + COALESCE(LENGTH(headers), 0) ELSE 0 END AS bytes
