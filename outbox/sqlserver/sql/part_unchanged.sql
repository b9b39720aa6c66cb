-- What was decided under another version is decided anew. Behind part_lock.sql. @decided version of the decision
    IF @found_version <> @decided
        THROW 50123, N'what was decided about a shard of {{table}} has changed', 1;
