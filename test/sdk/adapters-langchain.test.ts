import { ToolMessage } from '@langchain/core/messages';
import { DynamicStructuredTool, tool } from '@langchain/core/tools';
import { afterEach, describe, expect, it } from 'vitest';
import * as z from 'zod';
import { openGate } from '#sdk/adapters/index';
import { admitTool } from '#sdk/adapters/langchain';
import { SdkError } from '#sdk/index';
import { notAdmitted, useAdapterWorld } from '../fixtures/adapter-world.js';

const world = useAdapterWorld();
const ran: string[] = [];
afterEach(() => {
  ran.length = 0;
});

const schema = z.object({ seats: z.number(), garden: z.boolean().default(true) });
const book = (name: string) =>
  tool(
    ({ seats }) => {
      ran.push(name);
      return `a table for ${String(seats)}`;
    },
    { name, description: 'Books a table.', schema },
  );
const call = (name: string, args: Record<string, unknown>) =>
  ({ type: 'tool_call', id: 'call-1', name, args }) as const;

describe('admitTool', () => {
  it('runs an admitted tool as the model called it, and the call has a proof', async () => {
    const original = book('book_table');
    const wrapped = admitTool(original, openGate(world.common, 'langchain'));
    expect(wrapped).toBeInstanceOf(DynamicStructuredTool);
    expect([wrapped.name, wrapped.description, wrapped.schema]).toEqual([
      original.name,
      original.description,
      original.schema,
    ]);
    const message: unknown = await wrapped.invoke(call('book_table', { seats: 2 }));
    expect(message).toBeInstanceOf(ToolMessage);
    expect(message).toMatchObject({ content: 'a table for 2', tool_call_id: 'call-1' });
    await world.expectProof(world.admitted[0], {
      agent: { id: 'agent-7', framework: 'langchain' },
      action: 'BOOK_TABLE',
      tool: 'book_table',
      tool_call_id: 'call-1',
      args: { seats: 2, garden: true },
      result: 'a table for 2',
    });
    // The original tool still runs without an admission.
    expect(await original.invoke({ seats: 3 })).toBe('a table for 3');
    expect(world.admitted).toHaveLength(1);
  });

  it('does not run a denied tool, whichever method calls it', async () => {
    const wrapped = admitTool(book('deleteAuditLog'), world.common);
    const calls = [
      () => wrapped.invoke({ seats: 2 }),
      () => wrapped.invoke(call('deleteAuditLog', { seats: 2 })),
      () => wrapped.call({ seats: 2 }),
      () => wrapped.batch([{ seats: 2 }]),
      () => wrapped.stream({ seats: 2 }),
      () => wrapped.withConfig({ tags: ['a'] }).invoke({ seats: 2 }),
      () => wrapped.pipe((value: unknown) => value).invoke({ seats: 2 }),
    ];
    for (const one of calls) await notAdmitted(one(), 'policy_denied');
    const { proofId } = await notAdmitted(wrapped.invoke({ seats: 2 }), 'policy_denied');
    expect(ran).toEqual([]);
    expect(await world.verdict(proofId!)).toEqual({ status: 'VALID', effect: 'DENY' });
  });

  it('runs no tool without a decision or after its abort signal', async () => {
    const engine = { ...world.options, engineUrl: 'http://127.0.0.1:9', retry: { attempts: 1 } };
    const away = admitTool(book('book_table'), { ...world.common, engine });
    await notAdmitted(away.invoke({ seats: 2 }), 'network');
    const wrapped = admitTool(book('book_table'), world.common);
    world.network.faults.push({ kind: 'silent' });
    const controller = new AbortController();
    const before = world.network.seen.length;
    const running = wrapped.invoke({ seats: 2 }, { signal: controller.signal });
    running.catch(() => undefined);
    await expect.poll(() => world.network.seen.length).toBe(before + 1);
    controller.abort();
    await notAdmitted(running, 'aborted');
    // Arguments that do not match the schema cause no request.
    world.clear();
    await expect(wrapped.invoke({ seats: 'two' } as never)).rejects.toThrow('schema');
    expect(world.network.seen).toEqual([]);
    expect(ran).toEqual([]);
  });

  it('rejects an object that is not a StructuredTool', () => {
    const other = { name: 'other', invoke: () => Promise.resolve(1) };
    expect(() => admitTool(other, world.common)).toThrow(SdkError);
  });
});
