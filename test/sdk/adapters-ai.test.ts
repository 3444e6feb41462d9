import { jsonSchema, stepCountIs, streamText, tool, type ToolSet } from 'ai';
import { MockLanguageModelV3, simulateReadableStream } from 'ai/test';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { admitTools } from '#sdk/adapters/ai';
import { admitHooks } from '#sdk/adapters/claude';
import { admitTool as admitLangChain } from '#sdk/adapters/langchain';
import { admitTool as admitMastra } from '#sdk/adapters/mastra';
import { admitTool as admitOpenAi } from '#sdk/adapters/openai';
import { SdkError } from '#sdk/index';
import { useAdapterWorld } from '../fixtures/adapter-world.js';

const world = useAdapterWorld();
let ran: string[];

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};
type Call = [toolName: string, input: object];
const parts = (calls: Call[]) =>
  calls.map(([toolName, input], at) => ({
    type: 'tool-call' as const,
    toolCallId: `call-${String(at)}`,
    toolName,
    input: JSON.stringify(input),
  }));

/** A model that requests tool calls, and then answers `done`. */
function model(calls: Call[]): MockLanguageModelV3 {
  const finish = (unified: 'tool-calls' | 'stop') => ({ unified, raw: undefined });
  return new MockLanguageModelV3({
    doStream: [
      {
        stream: simulateReadableStream({
          chunks: [
            { type: 'stream-start', warnings: [] },
            ...parts(calls),
            { type: 'finish', finishReason: finish('tool-calls'), usage },
          ],
        }),
      },
      {
        stream: simulateReadableStream({
          chunks: [
            { type: 'stream-start', warnings: [] },
            { type: 'text-start', id: '1' },
            { type: 'text-delta', id: '1', delta: 'done' },
            { type: 'text-end', id: '1' },
            { type: 'finish', finishReason: finish('stop'), usage },
          ],
        }),
      },
    ],
  });
}

const stopWhen = stepCountIs(3);

function tools() {
  ran = [];
  return {
    bookTable: tool({
      inputSchema: z.object({ seats: z.number(), garden: z.boolean().default(true) }),
      execute: ({ seats }) => {
        ran.push('bookTable');
        return { table: seats };
      },
    }),
    fail: tool({
      inputSchema: z.object({}),
      execute: (): Promise<string> => Promise.reject(new Error('no table is free')),
    }),
    words: tool({
      inputSchema: z.object({}),
      execute: async function* () {
        yield 'a';
        yield await Promise.resolve('ab');
      },
    }),
  };
}

describe('admitTools', () => {
  it("runs an admitted tool in the AI SDK's tool loop, and the call has a proof", async () => {
    const result = streamText({
      model: model([['bookTable', { seats: 2 }]]),
      tools: admitTools(tools(), world.common),
      prompt: 'A table for two',
      stopWhen,
    });
    expect(await result.text).toBe('done');
    const [step] = await result.steps;
    expect(step?.toolResults.map((one) => one.output)).toEqual([{ table: 2 }]);
    expect(ran).toEqual(['bookTable']);
    await world.expectProof(world.admitted[0], {
      agent: { id: 'agent-7', framework: 'ai-sdk' },
      action: 'BOOK_TABLE',
      tool: 'bookTable',
      tool_call_id: 'call-0',
      // The arguments include the defaults of the schema.
      args: { seats: 2, garden: true },
      result: { table: 2 },
    });
  });

  it('passes errors and streamed results through', async () => {
    const result = streamText({
      model: model([
        ['fail', {}],
        ['words', {}],
      ]),
      tools: admitTools(tools(), world.common),
      prompt: 'Go',
      stopWhen,
    });
    const outputs: unknown[] = [];
    const errors: unknown[] = [];
    for await (const part of result.fullStream) {
      if (part.type === 'tool-result') outputs.push([part.output, part.preliminary ?? false]);
      if (part.type === 'tool-error') errors.push((part.error as Error).message);
    }
    expect(errors).toEqual(['no table is free']);
    expect(outputs).toEqual([
      ['a', true],
      ['ab', true],
      ['ab', false],
    ]);
    const outcomes = await Promise.all(world.admitted.map((id) => world.outcomesOf(id)));
    expect(
      outcomes
        .flat()
        .map((one) => 'result' in one && one.result)
        .sort(),
    ).toEqual(['failed', 'succeeded']);
  });

  it('rejects a tool without execute unless the option elsewhere names the tool', () => {
    const without: ToolSet = {
      askUser: tool({ inputSchema: jsonSchema({ type: 'object' }) }),
    };
    expect(() => admitTools(without, world.common)).toThrow(SdkError);
    expect(admitTools(without, { ...world.common, elsewhere: ['askUser'] })).toEqual(without);
  });
});

type Execute = (input: object, ...rest: unknown[]) => unknown;

it.each([
  ['empty', ''],
  ['long', 'x'.repeat(513)],
])('adapters > admit a call whose id is %s, without the id', async (_what, id) => {
  const { common } = world;
  const { signal } = new AbortController();
  const execute: Execute = () => 'ran';
  const define = (given: { id: string; name: string; execute: Execute }) => given;
  const given = { id: 'book', name: 'book', execute };
  const chain = { name: 'book', invoke: () => Promise.resolve('ran'), _call: execute };
  const input = {
    hook_event_name: 'PreToolUse',
    tool_name: 'book',
    tool_input: {},
    tool_use_id: id,
  };
  expect([
    await admitTools({ given }, common).given.execute({}, { toolCallId: id }),
    await admitOpenAi(define, common)(given).execute({}, {}, { toolCall: { callId: id } }),
    await admitMastra(define, common)(given).execute({}, { agent: { toolCallId: id } }),
    await admitLangChain(chain, common)._call({}, undefined, { toolCall: { id } }),
    await admitHooks(common).PreToolUse[0]!.hooks[0]!(input, id, { signal }),
  ]).toEqual(['ran', 'ran', 'ran', 'ran', {}]);
  const bodies = world.network.seen
    .filter(({ method }) => method === 'POST')
    .map(({ body }) => body);
  expect(bodies.join()).not.toContain('tool_call_id');
});
