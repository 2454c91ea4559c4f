// River's part of the comparison.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const chunk = 5000

type noop struct {
	Number int `json:"number"`
}

func (noop) Kind() string { return "noop" }

type fire struct {
	Number int `json:"number"`
}

func (fire) Kind() string { return "fire" }

// record keeps every start in memory.
type record struct {
	lock   sync.Mutex
	Starts []float64 `json:"starts"`
	Dues   []float64 `json:"dues"`
	Keys   []int     `json:"keys"`
}

func (r *record) started(due time.Time, key int) {
	now := time.Now()
	r.lock.Lock()
	defer r.lock.Unlock()
	r.Starts = append(r.Starts, seconds(now))
	r.Dues = append(r.Dues, seconds(due))
	r.Keys = append(r.Keys, key)
}

func (r *record) count() int {
	r.lock.Lock()
	defer r.lock.Unlock()
	return len(r.Starts)
}

var starts record

type noopWorker struct{ river.WorkerDefaults[noop] }

func (noopWorker) Work(_ context.Context, job *river.Job[noop]) error {
	starts.started(job.ScheduledAt, job.Args.Number)
	return nil
}

type fireWorker struct{ river.WorkerDefaults[fire] }

func (fireWorker) Work(_ context.Context, job *river.Job[fire]) error {
	starts.started(job.ScheduledAt, job.Args.Number)
	return nil
}

// everySecond is due at each full second.
type everySecond struct{}

func (everySecond) Next(current time.Time) time.Time {
	return current.Truncate(time.Second).Add(time.Second)
}

func main() {
	ctx := context.Background()
	config := must(pgxpool.ParseConfig(os.Getenv("PEER_DATABASE_URL")))
	config.MaxConns = 20
	pool := must(pgxpool.NewWithConfig(ctx, config))
	defer pool.Close()
	if os.Args[1] == "prepare" {
		prepare(ctx, pool)
	} else {
		work(ctx, pool)
	}
}

func prepare(ctx context.Context, pool *pgxpool.Pool) {
	driver := riverpgxv5.New(pool)
	must(must(rivermigrate.New(driver, nil)).Migrate(ctx, rivermigrate.DirectionUp, nil))
	client := must(river.NewClient(driver, &river.Config{Logger: logger()}))
	jobs, rate, start := number("PEER_JOBS"), number("PEER_RATE"), number("PEER_START")
	isSteady := os.Getenv("PEER_WORK") == "steady"
	for first := 0; first < int(jobs); first += chunk {
		var batch []river.InsertManyParams
		for i := first; i < min(first+chunk, int(jobs)); i++ {
			params := river.InsertManyParams{Args: noop{i}}
			if isSteady {
				due := time.UnixMicro(int64((start + float64(i)/rate) * 1e6))
				params.InsertOpts = &river.InsertOpts{ScheduledAt: due}
			}
			batch = append(batch, params)
		}
		must(client.InsertManyFast(ctx, batch))
	}
	must(pool.Exec(ctx, "vacuum analyze", pgx.QueryExecModeSimpleProtocol))
}

func work(ctx context.Context, pool *pgxpool.Pool) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &noopWorker{})
	river.AddWorker(workers, &fireWorker{})
	poll := 20 * time.Millisecond
	if os.Getenv("PEER_WORK") == "steady" {
		poll = 5 * time.Millisecond
	}
	var periodic []*river.PeriodicJob
	for i := range int(number("PEER_SCHEDULES")) {
		periodic = append(periodic, river.NewPeriodicJob(
			everySecond{},
			func() (river.JobArgs, *river.InsertOpts) { return fire{i}, nil },
			nil,
		))
	}
	client := must(river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: poll,
		Logger:            logger(),
		PeriodicJobs:      periodic,
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		Workers:           workers,
	}))
	check(client.Start(ctx))
	watch()
	stopping, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	check(client.Stop(stopping))
	say(&starts)
}

// watch says that jobs are taken from now on, tells how many started, and returns when the runner closes the input.
func watch() {
	say(map[string]bool{"ready": true})
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	told := 0
	for {
		select {
		case <-closed:
			return
		case <-ticker.C:
			if count := starts.count(); count != told {
				told = count
				say(map[string]int{"done": told})
			}
		}
	}
}

func say(words any) {
	fmt.Println(string(must(json.Marshal(words))))
}

func number(name string) float64 {
	return must(strconv.ParseFloat(os.Getenv(name), 64))
}

func seconds(moment time.Time) float64 {
	return float64(moment.UnixMicro()) / 1e6
}

func logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
