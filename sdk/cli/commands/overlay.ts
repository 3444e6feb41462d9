import { Argument } from 'commander';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import * as sdk from '../../index.js';
import { type CommandSpec, type Invocation, UsageError } from '../config.js';
import { readJson, readText } from '../files.js';
import { EXIT, type ExitCode, styled } from '../terminal.js';
import { printDocument } from './resources.js';

interface OverlayOptions {
  cases?: string;
  id?: string;
  rules?: string;
  since?: string;
}

type Action = (engine: sdk.EngineOptions, options: OverlayOptions) => Promise<object>;

const ACTIONS: Record<string, Action> = {
  put: async (engine, { rules }) =>
    sdk.storeOverlayHttp(engine, { rules: await readRules(given(rules, '--rules')) }),
  test: async (engine, { cases, id, since }) =>
    sdk.testOverlayHttp(engine, {
      overlay_id: given(id, '--id'),
      // Requires cases, --since or both: with neither, the command would exit with 0 although nothing was tested.
      ...(cases === undefined
        ? { since: given(since, '--cases or --since') }
        : { cases: await readCases(cases), ...(since !== undefined && { since }) }),
    }),
  activate: async (engine, { cases, id }) =>
    sdk.activateOverlayHttp(engine, {
      overlay_id: given(id, '--id'),
      cases: await readCases(given(cases, '--cases')),
    }),
  deactivate: (engine, { id }) =>
    sdk.deactivateOverlayHttp(engine, { overlay_id: given(id, '--id') }),
};

const OPTIONS: Record<string, readonly (keyof OverlayOptions)[]> = {
  put: ['rules'],
  test: ['id', 'cases', 'since'],
  activate: ['id', 'cases'],
  deactivate: ['id'],
};

export const overlayCommand: CommandSpec<OverlayOptions> = {
  name: 'overlay',
  summary: 'Store, test, activate or deactivate an overlay of the tenant',
  description:
    'An overlay only forbids, on top of the policy set of the operator. `put` stores the rules of a folder and prints the id. `test` runs the cases, evaluates the admissions since --since, or both, and records nothing; it exits 1 when a case fails. `activate` requires that every case passes and that each rule decides at least one case. Needs SVC_ENGINE_URL, SVC_TENANT_ID and a key with the scope policy.',
  examples: [
    'svc overlay put --rules overlay/',
    'svc overlay test --id 4a7d…9c21 --cases cases.json --since 2026-11-20T00:00:00.000Z',
    'svc overlay activate --id 4a7d…9c21 --cases cases.json',
    'svc list overlays',
  ],
  argument: new Argument('<ACTION>', 'operation').choices(Object.keys(ACTIONS)),
  options: [
    ['--id <ID>', 'id of the overlay'],
    ['--rules <FOLDER>', 'folder with one file, <rule id>.cedar, for each rule'],
    ['--cases <FILE>', 'JSON array of cases, as for `admin policy test`'],
    ['--since <TIME>', 'with test: evaluate the admissions since this time'],
  ],
  run: overlay,
};

async function overlay(invocation: Invocation<OverlayOptions>): Promise<ExitCode> {
  const { argument, json, options, terminal } = invocation;
  for (const name of ['id', 'rules', 'cases', 'since'] as const) {
    if (options[name] === undefined || OPTIONS[argument]!.includes(name)) continue;
    throw new UsageError(`--${name} does not apply to overlay ${argument}`);
  }
  const document = await ACTIONS[argument]!(invocation.engine(), options);
  const cases = 'cases' in document ? (document.cases as { failed: number } | null) : null;
  const code = cases === null || cases.failed === 0 ? EXIT.success : EXIT.negative;
  printDocument(invocation, document);
  if (!json && cases !== null) {
    terminal.print(styled(code, cases.failed === 0 ? 'PASSED' : 'FAILED'));
  }
  return code;
}

function given(value: string | undefined, option: string): string {
  if (value !== undefined) return value;
  throw new UsageError(`give ${option}`);
}

async function readRules(folder: string): Promise<Record<string, string>> {
  const names = (await readdir(folder).catch(() => [])).filter((name) => name.endsWith('.cedar'));
  if (names.length === 0)
    throw new UsageError(`${folder} has no rule files: expected <rule id>.cedar`);
  const texts = names.map(async (name) => [
    name.slice(0, -'.cedar'.length),
    await readText(join(folder, name)),
  ]);
  return Object.fromEntries(await Promise.all(texts)) as Record<string, string>;
}

async function readCases(file: string): Promise<sdk.PolicyCase[]> {
  const cases = await readJson(file);
  if (!Array.isArray(cases)) throw new UsageError(`${file} is not a JSON array of cases`);
  return cases as sdk.PolicyCase[];
}
