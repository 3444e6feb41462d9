import { createHash } from 'node:crypto';
import { readdir, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { admitHooks, type HookInput } from '#sdk/adapters/claude';
import { useAdapterWorld } from '../fixtures/adapter-world.js';
import { freePort } from '../fixtures/free-port.js';
import { type Folder, openFolder, svc, svcProcess } from '../fixtures/svc.js';

const world = useAdapterWorld();
let folder: Folder;
beforeAll(async () => {
  folder = await openFolder();
});

/** The JSON that Claude Code sends around a tool. */
const hookInput = (event: string, more: Partial<HookInput> = {}): HookInput => ({
  ...{
    session_id: 's-1',
    transcript_path: '/tmp/t.jsonl',
    cwd: '/tmp',
    permission_mode: 'default',
  },
  ...{ hook_event_name: event, tool_name: 'Bash', tool_input: { command: 'ls' } },
  ...{ tool_use_id: 'toolu_1', ...more },
});
const denial = (reason: RegExp) => ({
  hookSpecificOutput: {
    hookEventName: 'PreToolUse',
    permissionDecision: 'deny',
    permissionDecisionReason: expect.stringMatching(reason) as string,
  },
});
const toDelete = { tool_name: 'delete-audit-log', tool_use_id: 'toolu_2' };
const afterwards = { tool_response: { stdout: 'a' } };

describe('admitHooks', () => {
  const { signal } = new AbortController();
  const send = (hooks: ReturnType<typeof admitHooks>, input: HookInput) =>
    hooks[input.hook_event_name as 'PreToolUse'][0]!.hooks[0]!(input, input.tool_use_id, {
      signal,
    });

  it('admit a tool before it runs, and record its outcome', async () => {
    const hooks = admitHooks(world.common);
    expect(hooks.PreToolUse[0]).toMatchObject({ onFailure: 'block' });
    expect(await send(hooks, hookInput('PreToolUse'))).toEqual({});
    expect(await send(hooks, hookInput('PostToolUse', afterwards))).toEqual({});
    await world.expectProof(world.admitted[0], {
      agent: { id: 'agent-7', framework: 'claude-agent-sdk' },
      ...{ action: 'BASH', tool: 'Bash', tool_call_id: 'toolu_1' },
      ...{ args: { command: 'ls' }, result: { stdout: 'a' } },
    });
    for (const event of ['PostToolUseFailure', 'PermissionDenied']) {
      await send(hooks, hookInput('PreToolUse'));
      await send(hooks, hookInput(event));
      const [proofId = ''] = world.admitted.slice(-1);
      expect(await world.outcomesOf(proofId)).toMatchObject([{ result: 'failed' }]);
    }
  });

  it('deny a tool whose call is not admitted, with the reason, unless the mode is `observe`', async () => {
    const hooks = admitHooks(world.common);
    const denied = await send(hooks, hookInput('PreToolUse', toDelete));
    expect(denied).toEqual(denial(/^delete-audit-log did not run: denied by policy: .+ \(proof /));
    world.network.faults.push({ kind: 'answer', status: 401 });
    expect(await send(hooks, hookInput('PreToolUse'))).toEqual(denial(/^Bash did not run: not/));
    const stopped: string[] = [];
    const observing = admitHooks({
      ...world.common,
      ...{ mode: 'observe', onNotAdmitted: ({ code }) => stopped.push(code) },
    });
    expect(observing.PreToolUse[0]).not.toHaveProperty('onFailure');
    expect(await send(observing, hookInput('PreToolUse', toDelete))).toEqual({});
    await send(observing, hookInput('PostToolUse', toDelete));
    expect(stopped).toEqual(['policy_denied']);
    await send(observing, hookInput('PreToolUse'));
    await send(observing, hookInput('PostToolUse', afterwards));
    expect(await world.outcomesOf(world.admitted[0]!)).toMatchObject([{ result: 'succeeded' }]);
  });
});

describe('svc hook', () => {
  const env = (): Record<string, string> => ({
    SVC_ENGINE_URL: world.options.engineUrl,
    SVC_API_KEY: world.options.apiKey,
    SVC_TENANT_ID: world.options.tenantId,
    HOME: folder.path,
  });
  const hook = (stdin: object | string, more: string[] = [], overrides = {}) =>
    svc(['hook', '--agent', 'laptop', ...more], {
      stdin: typeof stdin === 'string' ? stdin : JSON.stringify(stdin),
      env: { ...env(), ...overrides },
    });
  const sent = () =>
    world.network.seen
      .filter(({ method }) => method === 'POST')
      .map(({ body }) => JSON.parse(body) as Record<string, unknown>);

  it('admits a call in one process, and records the outcome of the call in another process', async () => {
    const state = ['--state', `${folder.path}/state`];
    expect(await hook(hookInput('PreToolUse'), state)).toMatchObject({ code: 0, lines: [{}] });
    await hook(hookInput('PostToolUse', afterwards), state);
    await hook(hookInput('PostToolUse', afterwards), state);
    expect(sent()).toMatchObject([
      { kind: 'admission', agent: { id: 'laptop', framework: 'claude-code' }, action: 'BASH' },
      { kind: 'outcome', result: 'succeeded' },
    ]);
  });

  it('hashes every member of the input, even a member named `__proto__`', async () => {
    const text = '{"__proto__":{"path":"/etc"},"path":"/srv"}';
    const input = JSON.stringify(hookInput('PreToolUse')).replace('{"command":"ls"}', text);
    expect(await hook(input)).toMatchObject({ code: 0, lines: [{}] });
    const hash = createHash('sha256').update(text).digest('hex');
    expect(sent()).toMatchObject([{ arguments_hash: hash }]);
  });

  it('removes admissions without an outcome after a day', async () => {
    const directory = `${folder.path}/pruned`;
    await hook(hookInput('PreToolUse'), ['--state', directory]);
    const [lost = ''] = await readdir(directory);
    await hook(hookInput('PreToolUse', { tool_use_id: 'second' }), ['--state', directory]);
    expect(await readdir(directory)).toHaveLength(2);
    const yesterday = new Date(Date.now() - 25 * 60 * 60_000);
    await utimes(join(directory, lost), yesterday, yesterday);
    await writeFile(join(directory, 'other.json'), '');
    await utimes(join(directory, 'other.json'), yesterday, yesterday);
    await hook(hookInput('PreToolUse', { tool_use_id: 'third' }), ['--state', directory]);
    const kept = await readdir(directory);
    expect(kept).toHaveLength(3);
    expect(kept).toContain('other.json');
    expect(kept).not.toContain(lost);
  });

  it('takes the action and facts of a call from its input', async () => {
    const path = { pointer: '/file_path', type: 'path' };
    const tools = { Write: { action: 'WRITE_FILE', facts: { path } } };
    await folder.write('map.json', JSON.stringify({ tools }));
    const map = ['--map', `${folder.path}/map.json`];
    const write = { tool_name: 'Write', tool_input: { file_path: '/srv//a.txt', content: 'a' } };
    await hook(hookInput('PreToolUse', write), map);
    // The engine rejects the fact, because the policy set does not declare it; only the request matters.
    expect(sent()).toMatchObject([{ action: 'WRITE_FILE', facts: { path: '/srv/a.txt' } }]);
    const missing = await hook(hookInput('PreToolUse', write), ['--map', 'none.json']);
    expect(missing).toMatchObject({ code: 2, stdout: '' });
  });

  it('denies a call that the policy denies, and blocks after every failure', async () => {
    const denied = await hook(hookInput('PreToolUse', toDelete));
    expect(denied).toMatchObject({ code: 0, lines: [denial(/denied by policy/)] });
    const away = { SVC_ENGINE_URL: 'http://127.0.0.1:9' };
    const undecided = await hook(hookInput('PreToolUse'), ['--timeout', '0.5'], away);
    expect(undecided).toMatchObject({ code: 0, lines: [denial(/not admitted: no complete/)] });
    await folder.write('file', 'not a directory');
    const full = await hook(hookInput('PreToolUse'), ['--state', `${folder.path}/file`]);
    expect(full).toMatchObject({
      code: 0,
      lines: [denial(/the admission cannot be stored in .*: E/)],
    });
    expect(sent().at(-1)).toMatchObject({ kind: 'outcome', result: 'failed' });
    const { tool_input, ...unnamed } = hookInput('PreToolUse');
    const renamed = await hook({ ...unnamed, toolInput: tool_input });
    expect(renamed).toMatchObject({
      code: 0,
      lines: [denial(/the call cannot be described in a proof/)],
    });
    const failures = [
      () => hook('not JSON'),
      () => hook({ tool_name: 'Bash' }),
      // An event name that Claude Code does not use, but that could announce a tool call.
      () => hook(hookInput('preToolUse')),
      () => hook(hookInput('PreToolUse'), [], { SVC_API_KEY: '' }),
      () => hook(hookInput('PreToolUse'), ['--unknown']),
    ];
    for (const failure of failures) expect(await failure()).toMatchObject({ code: 2, stdout: '' });
    const observed = await hook(hookInput('PreToolUse', toDelete), ['--observe']);
    expect(observed).toMatchObject({ code: 0, lines: [{}] });
    // The hook may exit before the engine has received the request.
    await expect.poll(() => sent().at(-1)).toMatchObject({ action: 'DELETE_AUDIT_LOG' });
  });

  it('blocks the call when the output of the hook is lost, except in mode `observe`', async () => {
    const stdin = JSON.stringify(hookInput('PreToolUse', toDelete));
    const lost = (args: string[]) => svcProcess(args, { env: env(), stdin, closesStdout: true });
    expect(await lost(['hook'])).toMatchObject({ code: 2 });
    expect(await lost(['hook', '--observe'])).toMatchObject({ code: 3 });
  });

  it('serves HTTP hooks, denies the tool call when the token or the input is wrong, and reads a changed key file', async () => {
    const port = await freePort();
    const keyFile = join(folder.path, await folder.write('key', 'svc_sk_wrong'));
    let ran!: ReturnType<typeof svcProcess>;
    const program = await new Promise<{ interrupt(): void }>((started) => {
      ran = svcProcess(['hook', '--listen', String(port)], {
        env: { ...env(), SVC_API_KEY: '', SVC_API_KEY_FILE: keyFile, SVC_HOOK_TOKEN: 'secret' },
        onStderr: (_text, running) => Promise.resolve(started(running)),
      });
    });
    const post = (input: HookInput | string, token = 'secret') =>
      fetch(`http://127.0.0.1:${String(port)}/`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${token}` },
        body: typeof input === 'string' ? input : JSON.stringify(input),
      });
    // Claude Code may run the tool after a status other than 2xx.
    for (const [rejected, reason] of [
      [await post(hookInput('PreToolUse'), 'other'), /the tool did not run: .+ wrong token/],
      [await post('not JSON'), /the tool did not run: the input is not/],
    ] as const) {
      expect(rejected.status).toBe(200);
      expect(await rejected.json()).toEqual(denial(reason));
    }
    expect(sent()).toEqual([]);
    const undecided = await post(hookInput('PreToolUse'));
    expect(await undecided.json()).toEqual(denial(/not admitted: unauthenticated/));
    await folder.write('key', world.options.apiKey);
    world.network.seen.length = 0;
    expect(await (await post(hookInput('PreToolUse'))).json()).toEqual({});
    expect(await (await post(hookInput('PostToolUse', afterwards))).json()).toEqual({});
    expect(sent().map(({ kind }) => kind)).toEqual(['admission', 'outcome']);
    const denied = await post(hookInput('PreToolUse', toDelete));
    expect(await denied.json()).toEqual(denial(/denied by policy/));
    program.interrupt();
    expect(await ran).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/wrong token\n.*the input is not/) as string,
    });
  });
});
