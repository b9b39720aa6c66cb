-- How every transaction ends. THROW hands on what went wrong; XACT_ABORT has made the transaction one that can only be rolled back.
    COMMIT TRANSACTION;
END TRY
BEGIN CATCH
    IF @@TRANCOUNT > 0
        ROLLBACK TRANSACTION;
    THROW;
END CATCH;
