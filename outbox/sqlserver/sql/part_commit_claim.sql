-- How a claim ends. Losing its commit only repeats a send, so it need not wait for the disk. It has an effect where the database has
-- DELAYED_DURABILITY = ALLOWED: the request "is ignored if the database has been altered with DELAYED_DURABILITY = DISABLED or DELAYED_DURABILITY =
-- FORCED".
    COMMIT TRANSACTION WITH (DELAYED_DURABILITY = ON);
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
