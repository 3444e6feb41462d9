import {
  Agent,
  type Model,
  type ModelResponse,
  Runner,
  tool,
  type Tool,
  Usage,
} from '@openai/agents-core';
import { describe, expect, it } from 'vitest';
import * as z from 'zod';
import { admitted } from '#sdk/adapters/function';
import { admitTool } from '#sdk/adapters/openai';
import { useAdapterWorld } from '../fixtures/adapter-world.js';

const world = useAdapterWorld();
let ran: string[];

/** A model that calls one tool, and then answers with what it read. */
function modelThatCalls(name: string, args: object): Model {
  return {
    getResponse: ({ input }): Promise<ModelResponse> => {
      const last = typeof input === 'string' ? undefined : input.at(-1);
      const call = { type: 'function_call', callId: 'call-1', name, status: 'completed' } as const;
      const output: ModelResponse['output'] =
        last?.type === 'function_call_result'
          ? [
              {
                ...{ type: 'message', role: 'assistant', status: 'completed' },
                content: [{ type: 'output_text', text: JSON.stringify(last.output) }],
              },
            ]
          : [{ ...call, arguments: JSON.stringify(args) }];
      return Promise.resolve({ usage: new Usage(), output });
    },
    getStreamedResponse: () => {
      throw new Error('not used');
    },
  };
}

function tools() {
  ran = [];
  return [
    admitTool(
      tool,
      world.common,
    )({
      name: 'book_table',
      description: 'Books a table.',
      parameters: z.object({ seats: z.number(), garden: z.boolean().default(true) }),
      execute: ({ seats }) => {
        ran.push('book_table');
        return { table: seats };
      },
    }),
  ];
}

const deletion = {
  name: 'deleteAuditLog',
  description: 'Deletes the log.',
  parameters: z.object({}),
  execute: () => ({ ok: true }),
};

const run = async (name: string, args: object = {}, given: Tool[] = tools()): Promise<string> => {
  const agent = new Agent({ name: 'agent', model: modelThatCalls(name, args), tools: given });
  const { finalOutput } = await new Runner({ tracingDisabled: true }).run(agent, 'A table for two');
  return String(finalOutput);
};

describe('admitTool for OpenAI Agents', () => {
  it("runs an admitted tool in the SDK's loop, and the call has a proof", async () => {
    expect(await run('book_table', { seats: 2 })).toContain('table');
    expect(ran).toEqual(['book_table']);
    await world.expectProof(world.admitted[0], {
      agent: { id: 'agent-7', framework: 'openai-agents' },
      action: 'BOOK_TABLE',
      tool: 'book_table',
      tool_call_id: 'call-1',
      args: { seats: 2, garden: true },
      result: { table: 2 },
    });
  });

  it('does not end the run of an agent whose denied tool has an output schema', async () => {
    const structured = z.object({ ok: z.boolean() });
    const json = z.toJSONSchema(structured) as never;
    for (const outputSchema of [structured, json]) {
      const denied = admitTool(tool, world.common)({ ...deletion, outputSchema });
      expect(await run('deleteAuditLog', {}, [denied])).toContain(
        'deleteAuditLog did not run: denied by policy: ',
      );
    }
    const invalid = admitTool(
      tool,
      world.common,
    )({ ...deletion, name: 'read', outputSchema: structured, execute: () => ({ ok: 1 }) as never });
    await expect(run('read', {}, [invalid])).rejects.toThrow(/Invalid output/);
  });

  it('shows the reason if the framework ignores the output schema, as versions before 0.14 do', async () => {
    const older = (({ outputSchema: _, ...options }: object & { outputSchema?: unknown }) =>
      tool(options as never)) as typeof tool;
    const outputSchema = z.object({ ok: z.boolean() });
    const denied = admitTool(older, world.common)({ ...deletion, outputSchema });
    expect(await run('deleteAuditLog', {}, [denied])).toContain('deleteAuditLog did not run: ');
  });

  it('passes the SdkError to the error function of a tool with an output schema', async () => {
    const seen: unknown[] = [];
    const structured = admitTool(
      tool,
      world.common,
    )({
      ...deletion,
      outputSchema: z.object({ ok: z.boolean() }),
      errorFunction: (_context, error) => {
        seen.push(error);
        return { ok: false };
      },
    });
    expect(await structured.invoke({} as never, '{}')).toEqual({ ok: false });
    expect(seen).toMatchObject([{ name: 'SdkError', code: 'policy_denied' }]);
  });

  it('passes the denial of a guarded function that a tool called to the error function of that tool', async () => {
    const remove = admitted(() => 'done', { ...world.common, tool: 'deleteAuditLog' });
    const cleanUp = admitTool(
      tool,
      world.common,
    )({
      ...deletion,
      name: 'clean_up',
      execute: () => remove(),
      errorFunction: (_context, error) => `failed: ${(error as Error).message}`,
    });
    expect(await cleanUp.invoke({} as never, '{}')).toMatch(/^failed: deleteAuditLog did not run/);
  });

  it('rejects a tool without a function to guard', () => {
    const without = { name: 'a', description: 'b', parameters: z.object({}) };
    expect(() => admitTool(tool, world.common)(without as never)).toThrow(
      expect.objectContaining({ code: 'invalid_input' }),
    );
  });
});
