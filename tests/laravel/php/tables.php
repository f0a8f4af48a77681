<?php

// A small Laravel on a database: its queue and database components as Debian ships them.
//
//     php tables.php push                        reads JSON lines from stdin, queues what they say, prints row ids
//     php tables.php work QUEUES COUNT TRIES     runs COUNT jobs, prints a JSON line for each thing that happens
//     php tables.php artisan CLASS ARGUMENTS     runs a command of Illuminate\Queue\Console; ARGUMENTS are JSON;
//                                                prints {"code": …, "output": …}
//
// DATABASE is JSON: what Laravel's config/database.php says of the connection. RETRY_AFTER as in config/queue.php.

require '/usr/share/php/Illuminate/Queue/autoload.php';
require '/usr/share/php/Illuminate/Database/autoload.php';
require '/usr/share/php/Illuminate/Events/autoload.php';
require '/usr/share/php/Illuminate/Console/autoload.php';

use Illuminate\Container\Container;
use Illuminate\Contracts\Debug\ExceptionHandler;
use Illuminate\Database\Capsule\Manager as Database;
use Illuminate\Events\Dispatcher;
use Illuminate\Queue\Capsule\Manager as Queue;
use Illuminate\Queue\Connectors\DatabaseConnector;
use Illuminate\Queue\Events\JobFailed;
use Illuminate\Queue\Failed\DatabaseUuidFailedJobProvider;
use Illuminate\Queue\Worker;
use Illuminate\Queue\WorkerOptions;
use Symfony\Component\Console\Input\ArrayInput;
use Symfony\Component\Console\Output\BufferedOutput;

function say(array $what): void
{
    echo json_encode($what), "\n";
    flush();
}

class Mailer
{
    public function send($job, $data)
    {
        say(['did' => $job->getName(), 'uuid' => $job->uuid(), 'attempts' => $job->attempts(), 'data' => $data]);
        if (isset($data['throw'])) {
            throw new RuntimeException($data['throw']);
        }
        isset($data['release']) && $job->attempts() < 2 ? $job->release($data['release']) : $job->delete();
    }
}

class Quiet implements ExceptionHandler
{
    public function report(Throwable $e) { say(['reported' => get_class($e), 'message' => $e->getMessage()]); }
    public function shouldReport(Throwable $e) { return true; }
    public function render($request, Throwable $e) {}
    public function renderForConsole($output, Throwable $e) {}
}

date_default_timezone_set('UTC');
$app = new Container;
$database = new Database($app);
$database->addConnection(json_decode(getenv('DATABASE'), true));
$databases = $database->getDatabaseManager();
$events = new Dispatcher($app);
$app->instance(Illuminate\Contracts\Events\Dispatcher::class, $events);
$queues = new Queue($app);
$queues->getQueueManager()->addConnector('database', function () use ($databases) {
    return new DatabaseConnector($databases);
});
$config = [
    'driver' => 'database',
    'table' => 'jobs',
    'queue' => 'default',
    'retry_after' => (int) (getenv('RETRY_AFTER') ?: 90),
];
$queues->addConnection($config);
$queues->addConnection($config, 'database'); // what config/queue.php of a new application calls it
$queue = $queues->getConnection();
$failer = new DatabaseUuidFailedJobProvider($databases, 'default', 'failed_jobs');

switch ($argv[1]) {
    case 'push':
        while ($line = fgets(STDIN)) {
            $wish = json_decode($line, true);
            $data = $wish['data'] ?? '';
            echo isset($wish['delay'])
                ? $queue->later($wish['delay'], $wish['job'], $data, $wish['queue'])
                : $queue->push($wish['job'], $data, $wish['queue']), "\n";
        }
        break;
    case 'work':
        $events->listen(JobFailed::class, function ($event) use ($failer) {
            $job = $event->job;
            $failer->log('database', $job->getQueue(), $job->getRawBody(), $event->exception);
            say(['failed' => $job->uuid(), 'attempts' => $job->attempts()]);
        });
        $worker = new Worker($queues->getQueueManager(), $events, new Quiet, function () { return false; });
        $options = new WorkerOptions('default', 0, 128, 60, 0, (int) $argv[4]);
        for ($n = 0; $n < (int) $argv[3]; $n++) {
            $worker->runNextJob('default', $argv[2], $options);
        }
        break;
    case 'artisan':
        $app->instance('queue', $queues->getQueueManager());
        $app->instance('queue.failer', $failer);
        $app->instance('events', $events);
        $class = 'Illuminate\\Queue\\Console\\' . $argv[2];
        $command = new $class;
        $command->setLaravel($app);
        $output = new BufferedOutput;
        $code = $command->run(new ArrayInput(json_decode($argv[3], true)), $output);
        say(['code' => $code, 'output' => $output->fetch()]);
        break;
}
