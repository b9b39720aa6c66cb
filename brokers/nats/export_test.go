package nats

// SubjectOf is subjectOf.
func SubjectOf(prefix, destination string) (string, error) { return subjectOf(prefix, destination) }
