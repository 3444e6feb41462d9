import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { audit, monitorLog, runFsck } from '../faults/audit.js';
import { Client } from '../faults/client.js';
import { untilComplete } from '../faults/completion.js';
import { Observation, printed } from '../faults/observation.js';
import { inTime } from '../faults/pace.js';
import { LOAD } from '../faults/stacks.js';
import { runEntryPoint, startWorld, type World } from '../faults/world.js';
import { Host } from './database.js';
import { earlierRelease } from './release.js';
import {
  beginStep,
  prepareEarlier,
  seconds,
  STEPS,
  untilHealthy,
  type Day,
  type Step,
} from './steps.js';
import { recover } from './loss.js';

const USAGE = `npm run test:operations -- [options]
  --only <name>   run only the steps with this text in their name; repeatable
  --earlier <dir> a checkout of version 0.1.0 that is built already
  --json <file>   write the report to a file
`;

const { values } = parseArgs({
  options: {
    only: { type: 'string', multiple: true, default: [] },
    earlier: { type: 'string' },
    json: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
});

const ANSWER_MS = 60_000;
const COMPLETE_MS = 3 * 60_000;

/**
 * Alerts that a day causes without a fault: fsck runs only at the end of the day, the first backup is one
 * of its steps, and its restarts are minutes apart.
 */
const NOT_YET = ['SvcFsckOld', 'SvcBackupOld', 'SvcRestarting'];

interface Report {
  step: string;
  /** Requests that were not acknowledged at once. */
  failed: number;
  took: string;
  /** Time from the end of the step to an acknowledged request at each engine, and to a healthy status. */
  answered: string;
  healthy: string;
  seen: string[];
  problems: string[];
}

const newReport = (step: string): Report => ({
  step,
  failed: 0,
  took: '–',
  answered: '–',
  healthy: '–',
  seen: [],
  problems: [],
});

async function play(day: Day, step: Step): Promise<Report> {
  const { world, client } = day;
  await beginStep(day, step.signals);
  const problems: string[] = [];
  const began = performance.now();
  const failedBefore = client.failed;
  const report = { ...newReport(step.name), problems };
  try {
    await step.play(day);
    const ended = performance.now();
    report.took = seconds(ended - began);
    const at = await inTime(client.nextSuccess(), ANSWER_MS, 'no request succeeds after the step');
    report.answered = seconds(at - ended);
    report.healthy = await untilHealthy(day);
  } catch (error) {
    problems.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
  }
  report.failed = client.failed - failedBefore;
  const { seen, problems: found } = await day.observation.finish();
  report.seen = seen.map(printed);
  problems.push(...found, ...endedOf(world), ...client.records.wrong.splice(0).slice(0, 3));
  return report;
}

/** The programs that exited unexpectedly. */
const endedOf = ({ programs }: World): string[] =>
  Object.values(programs).flatMap(({ ended }) => ended.splice(0));

function print({ step, failed, took, answered, healthy, seen, problems }: Report): void {
  const outcome = problems.length === 0 ? 'ok' : 'FAILED';
  const recovery = `requests succeed after ${answered}, healthy after ${healthy}`;
  console.log(`${outcome} ${step}: took ${took}, ${String(failed)} requests failed; ${recovery}`);
  for (const line of seen) console.log(`    saw: ${line}`);
  for (const line of problems) console.log(`    PROBLEM: ${line}`);
}

async function main(): Promise<void> {
  if (values.help) {
    console.log(USAGE);
    return;
  }
  const home = await mkdtemp(join(tmpdir(), 'svc-operations-'));
  const earlier = values.earlier ?? (await earlierRelease(home));
  const world = await startWorld({
    withDisks: false,
    openDatabase: (settings) => Host.open(settings),
    prepare: (owner) => prepareEarlier(earlier, owner),
    root: earlier,
  });
  const { engineUrls, apiKey, tenantId, eraseUrl } = world;
  const open = { ...LOAD, engineUrls, apiKey, tenantId, eraseUrl };
  const client = new Client({ ...open, run: 'day-0' });
  const observation = await Observation.open(world, { except: NOT_YET });
  const day: Day = { world, client, home, host: world.database as Host, observation };
  const reports: Report[] = [];
  client.start();
  await inTime(client.nextSuccess(), ANSWER_MS, 'the earlier release admits nothing');
  const isChosen = ({ name }: Step): boolean =>
    values.only.length === 0 || values.only.some((part) => name.includes(part));
  for (const step of STEPS.filter((one) => one.isNeeded === true || isChosen(one))) {
    const report = await play(day, step);
    reports.push(report);
    print(report);
  }
  await client.stop();
  const { requests } = client.records;
  const acts = client.acts.sent;
  const late = await untilComplete(world, client, acts, COMPLETE_MS);
  const audited = await audit(world, client, { requests, acts });
  const last = {
    ...newReport('the host is lost, restored and its log adopted'),
    ...(await recover(day, open)),
  };
  print(last);
  const problems = [
    ...reports.flatMap((one) => one.problems.map((problem) => `${one.step}: ${problem}`)),
    ...late,
    ...audited.lost,
    ...audited.double,
    ...audited.wrong,
    ...last.problems,
    ...endedOf(world),
    ...(await monitorLog(world)),
    ...(await runFsck(world)),
  ];
  const figures = {
    requests: requests.length,
    deduplication_keys: client.records.deduplicationKeys,
    acts: acts.length,
    lost: audited.lost.length,
    double: audited.double.length,
    problems: problems.slice(0, 50),
  };
  console.log(JSON.stringify(figures, null, 2));
  if (values.json !== undefined) {
    const steps = [...reports, last];
    await writeFile(values.json, `${JSON.stringify({ ...figures, steps }, null, 2)}\n`);
  }
  await observation.close();
  await world.close();
  await rm(home, { recursive: true, force: true });
  if (problems.length > 0) process.exitCode = 1;
}

await runEntryPoint(main);
