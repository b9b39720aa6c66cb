package testservers

import (
	"context"
	"fmt"
	"os"
)

// optionalServices are the servers that only make test-all tests with, and that tests can do
// without. A server whose launch is nil is started by the tests themselves, since they kill it or
// need several: they get its binary.
var optionalServices = []*service{nats, kafka, pubSub}

// StartOptional gets the servers that tests can do without: those that variables name, else those
// whose binaries are on this machine or can be fetched, announced first, else containers. It says
// on log which cannot be had and the remedy, which is no error: their tests are skipped. A server
// that is there and does not answer is an error, as in [Start].
func (s *Servers) StartOptional(ctx context.Context) error {
	return s.startOptional(ctx, optionalServices)
}

func (s *Servers) startOptional(ctx context.Context, services []*service) error {
	todo := map[source][]*service{}
	for _, svc := range services {
		from, reason := s.chooseOptional(ctx, svc)
		if reason != "" {
			fmt.Fprintf(s.log, "testservers: no %s, so its tests are skipped: %s. %s\n", svc.name, reason, svc.remedy)
			continue
		}
		todo[from] = append(todo[from], svc)
	}
	for _, svc := range todo[fromEnvironment] {
		if err := s.useGiven(ctx, svc); err != nil {
			return err
		}
	}
	if containers := todo[fromEngine]; len(containers) > 0 {
		err := s.startContainers(ctx, s.findEngine(ctx, containers), containers)
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil {
			fmt.Fprintf(s.log, "testservers: no %s, so their tests are skipped: %v\n", names(containers), err)
		}
	}
	var started []*service
	for _, svc := range todo[fromBinaries] {
		if svc.launch != nil {
			started = append(started, svc)
			continue
		}
		version, err := svc.version(ctx, s.binaries[svc.name])
		if err != nil {
			return err
		}
		s.versions[svc.name] = version
		fmt.Fprintf(s.log, "%s %s: %s, which tests start\n", svc.name, version, s.binaries[svc.name])
	}
	return s.launch(ctx, started)
}

// FindKafka finds or fetches the binaries of Kafka, for a command that starts a cluster of its own, as
// [Servers.StartOptional] does.
func (s *Servers) FindKafka(ctx context.Context) {
	if _, reason := s.chooseOptional(ctx, kafka); reason != "" {
		fmt.Fprintf(s.log, "testservers: no %s: %s. %s\n", kafka.name, reason, kafka.remedy)
	}
}

// chooseOptional picks the source of a server, and fetches its binary where that is the one: unlike
// the other servers', before a container, since tests kill servers of their own. The reason says
// why there is none.
func (s *Servers) chooseOptional(ctx context.Context, svc *service) (from source, reason string) {
	known := s.facts(ctx, svc, false)
	if known.given {
		return fromEnvironment, ""
	}
	if known.binary {
		return fromBinaries, ""
	}
	reason = InstallVariable + "=0 forbids fetching it"
	if os.Getenv(InstallVariable) != "0" {
		path, err := svc.fetch(ctx, s.log)
		if err == nil {
			s.binaries[svc.name] = path
			return fromBinaries, ""
		}
		reason = err.Error()
	}
	if svc.container != "" && s.findEngine(ctx, []*service{svc}) != nil {
		return fromEngine, ""
	}
	return "", reason
}

// Missing says for a test that is skipped that the optional server of a variable, one of a server
// or of a binary, is not there, and the remedy.
func Missing(variable string) string {
	for _, svc := range optionalServices {
		if svc.variable == variable || svc.binVariable == variable {
			return fmt.Sprintf("no %s: %s is not set. %s", svc.name, variable, svc.remedy)
		}
	}
	return variable + " is not set"
}

// noBinary is why a server of one's own cannot be started.
func noBinary(svc *service) error { return fmt.Errorf("%w: %s", ErrNoBinary, Missing(svc.binVariable)) }
