package inbox

// StatementsOf are the texts for a table, by what they are for.
func StatementsOf(dialect, table string) map[string]string {
	s := newStatements(dialect, table)
	texts := map[string]string{}
	for name, statement := range map[string]statement{
		"claim": s.claim, "claim_token": s.claimToken, "look": s.look, "count": s.count, "count_token": s.countToken,
		"dead_letter": s.deadLetters, "redriven": s.redriven, "redrive": s.redrive, "redrive_all": s.redriveAll, "finish": s.finish, "finish_token": s.finishToken, "progress": s.progress, "types": s.types,
		"expect": s.expect, "migrate": s.migrate, "versions": s.versions, "record": s.record, "lock": s.lock,
	} {
		texts[name] = statement.text
	}
	for status, statement := range s.purge {
		texts["purge_"+status] = statement.text
	}
	for status, statement := range s.lockOld {
		texts["lock_old_"+status] = statement.text
	}
	if dialect == postgres {
		texts["probe"] = s.probing.text
	}
	if dialect == mySQL {
		texts["release"], texts["lock_dead"], texts["packet"] = s.release.text, s.lockDead.text, s.packet.text
	}
	return texts
}
