import * as z from 'zod';
import type { OperationSpec } from '../../openapi/operation-spec.js';
import { revalidated, type Operation } from '../operation.js';
import { serveFixed } from '../http/answer.js';
import { getPage } from '../page.js';
import { ICON, SCRIPT, STYLE } from './assets.js';

const optionalText = (description: string) => z.string().optional().meta({ description });
const html = (description: string): OperationSpec['responses'][number] => ({
  description,
  content: { 'text/html': 'text' },
});

const asset = (id: string, path: string, type: string, text: string): Operation => ({
  spec: {
    id,
    method: 'get',
    path,
    tag: 'Page',
    summary: `Get ${path.slice(path.lastIndexOf('/') + 1)} of the page`,
    responses: revalidated({
      description: 'A file that the page loads.',
      content: { [type]: 'text' },
    }),
    problems: [],
  },
  handler: serveFixed(type.startsWith('text/') ? `${type}; charset=utf-8` : type, () => text),
});

export const PAGE_OPERATIONS: readonly Operation[] = [
  {
    spec: {
      id: 'page',
      method: 'get',
      path: '/',
      tag: 'Page',
      summary: 'Show a verdict as a page',
      description:
        'Without an identifier, the page is a form. With one, it shows the response of the JSON route for ' +
        'that kind of identifier. Errors are pages too.',
      query: z.object({
        id: optionalText('The identifier to look up.'),
        identifier: optionalText('Alias of `id`, as in the JSON route.'),
        q: optionalText('Alias of `id`.'),
      }),
      fromSnapshot: true,
      answerHeaders: {
        'X-Robots-Tag': '`noindex`: lookups must not appear in search engines.',
      },
      responses: {
        ...revalidated(html('The form, or the verdict.')),
        400: html('More than one identifier, or one that is too long.'),
        404: html('The registry has no such proof.'),
        503: {
          ...html('No valid snapshot is available.'),
          headers: { 'Retry-After': 'Seconds to wait before trying again.' },
        },
      },
      problems: [],
    },
    handler: getPage,
  },
  asset('pageStyle', '/page/style.css', 'text/css', STYLE),
  asset('pageScript', '/page/copy.js', 'text/javascript', SCRIPT),
  asset('pageIcon', '/page/icon.svg', 'image/svg+xml', ICON),
];
