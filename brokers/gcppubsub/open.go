package gcppubsub

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"time"

	"cloud.google.com/go/pubsub/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

var legalProject = regexp.MustCompile(`^[a-z0-9][a-z0-9.:\-]*$`)

// Open returns a broker with a client of its own that Close closes. Credentials are found by the rules
// of the ecosystem (GOOGLE_APPLICATION_CREDENTIALS, gcloud's application default, the machine's service
// account) unless [Settings.Client] gives them; with PUBSUB_EMULATOR_HOST set, an emulator is used
// without any. It does not connect yet: use Ping to find out. ctx is for finding credentials and has no
// further use.
func Open(ctx context.Context, settings Settings) (*Broker, error) {
	project := settings.Project
	b := New(nil, settings)
	dial := append(ClientOptions(), endpoint(settings.Endpoint, os.Getenv(emulatorVariable) != "")...)
	client, err := pubsub.NewClient(ctx, project, append(dial, settings.Client...)...)
	if err != nil {
		return nil, fmt.Errorf("gcppubsub: open project %q: %w", project, err)
	}
	if !legalProject.MatchString(client.Project()) {
		_ = client.Close()
		return nil, fmt.Errorf("gcppubsub: open project %q: this is not the id of a project, such as acme-prod-123 (lowercase; not its "+
			"display name)", client.Project())
	}
	b.client, b.owned = client, true
	return b, nil
}

// ClientOptions are the options that [Open] makes its client with: after an outage a connection is
// tried again within about a second, where gRPC would wait for up to two minutes, and nothing is
// repeated behind the broker's back.
func ClientOptions() []option.ClientOption {
	return []option.ClientOption{
		option.WithGRPCDialOption(grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		})),
		option.WithGRPCDialOption(grpc.WithDisableRetry()),
	}
}
