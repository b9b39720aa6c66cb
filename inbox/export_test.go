package inbox

// StatementsOf are the texts for a table, by what they are for.
func StatementsOf(dialect, table string) map[string]string {
	s := newStatements(dialect, table)
	texts := map[string]string{
		"claim": s.claim, "claim_token": s.claimToken, "look": s.look, "count": s.count, "count_token": s.countToken,
		"dead_letter": s.deadLetters, "redriven": s.redriven, "redrive": s.redrive, "redrive_all": s.redriveAll, "finish": s.finish, "finish_token": s.finishToken,
		"expect": s.expect, "migrate": s.migrate, "versions": s.versions, "record": s.record, "lock": s.lock,
	}
	for status, text := range s.purge {
		texts["purge_"+status] = text
	}
	return texts
}
