<?php

// A small Laravel: the queue and Redis components as Debian ships them, without the rest of the framework.
//
//     php laravel.php push                        reads JSON lines from stdin, queues what they say, prints the ids
//     php laravel.php work QUEUES COUNT TRIES     runs COUNT jobs, prints a JSON line for each thing that happens
//     php laravel.php size QUEUE                  how many jobs it counts
//
// The environment says where Redis is (REDIS_HOST, REDIS_PORT), and PREFIX, RETRY_AFTER and BLOCK_FOR.

namespace {
    require '/usr/share/php/Illuminate/Queue/autoload.php';
    require '/usr/share/php/Illuminate/Redis/autoload.php';
    require '/usr/share/php/Illuminate/Events/autoload.php';

    function say(array $what): void
    {
        echo json_encode($what), "\n";
        flush();
    }

    // A string job: Mailer@send, or Mailer alone, which means fire.
    class Mailer
    {
        public function fire($job, $data)
        {
            $this->send($job, $data);
        }

        public function send($job, $data)
        {
            say(['did' => $job->getName(), 'uuid' => $job->uuid(), 'attempts' => $job->attempts(), 'data' => $data]);
            if (isset($data['throw'])) {
                throw new RuntimeException($data['throw']);
            }
            if (isset($data['release'])) {
                $job->release($data['release']);
            } elseif (! isset($data['forget'])) { // who does neither gets it again after retry_after
                $job->delete();
            }
        }
    }
}

namespace App {
    use Illuminate\Bus\Queueable;
    use Illuminate\Contracts\Queue\ShouldQueue;
    use Illuminate\Queue\InteractsWithQueue;

    class CloseOrder implements ShouldQueue
    {
        use InteractsWithQueue, Queueable;

        public $tries = 4;
        public $backoff = [1, 5];
        public $order_id;
        protected $note = 'ü "quoted"';
        private $lines;
        public $when;

        public function __construct($order_id, array $lines = [])
        {
            $this->order_id = $order_id;
            $this->lines = $lines;
            $this->when = new \DateTime('2026-11-21T15:00:00Z');
        }
    }
}

namespace {
    use Illuminate\Container\Container;
    use Illuminate\Contracts\Debug\ExceptionHandler;
    use Illuminate\Events\Dispatcher;
    use Illuminate\Queue\Capsule\Manager as Queue;
    use Illuminate\Queue\Events\JobFailed;
    use Illuminate\Queue\Worker;
    use Illuminate\Queue\WorkerOptions;
    use Illuminate\Redis\RedisManager;

    class Quiet implements ExceptionHandler
    {
        public function report(Throwable $e) { say(['reported' => get_class($e), 'message' => $e->getMessage()]); }
        public function shouldReport(Throwable $e) { return true; }
        public function render($request, Throwable $e) {}
        public function renderForConsole($output, Throwable $e) {}
    }

    $app = new Container;
    $app->instance('redis', new RedisManager($app, 'phpredis', [
        'options' => ['prefix' => getenv('PREFIX') ?: ''],
        'default' => ['host' => getenv('REDIS_HOST'), 'port' => (int) getenv('REDIS_PORT'), 'database' => 0],
    ]));
    $events = new Dispatcher($app);
    $app->instance(Illuminate\Contracts\Events\Dispatcher::class, $events);
    $queues = new Queue($app);
    $queues->addConnection([
        'driver' => 'redis',
        'connection' => 'default',
        'queue' => 'default',
        'retry_after' => (int) (getenv('RETRY_AFTER') ?: 90),
        'block_for' => getenv('BLOCK_FOR') ? (int) getenv('BLOCK_FOR') : null,
    ]);
    $queue = $queues->getConnection();

    switch ($argv[1]) {
        case 'push':
            while ($line = fgets(STDIN)) {
                $wish = json_decode($line, true);
                $job = isset($wish['object']) ? new App\CloseOrder($wish['object'], $wish['lines'] ?? []) : $wish['job'];
                if (isset($wish['chained'])) {
                    $job->chain([new App\CloseOrder(1), new App\CloseOrder(2)]);
                }
                $data = $wish['data'] ?? '';
                echo isset($wish['delay'])
                    ? $queue->later($wish['delay'], $job, $data, $wish['queue'])
                    : $queue->push($job, $data, $wish['queue']), "\n";
            }
            break;
        case 'work':
            $events->listen(JobFailed::class, function ($event) {
                say(['failed' => $event->job->uuid(), 'attempts' => $event->job->attempts()]);
            });
            $worker = new Worker($queues->getQueueManager(), $events, new Quiet, function () { return false; });
            $options = new WorkerOptions('default', 0, 128, 60, 0, (int) $argv[4]);
            for ($n = 0; $n < (int) $argv[3]; $n++) {
                $worker->runNextJob('default', $argv[2], $options);
            }
            break;
        case 'size':
            echo $queue->size($argv[2]), "\n";
            break;
    }
}
