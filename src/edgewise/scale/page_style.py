"""The page's style and script."""

STYLE = """
:root{color-scheme:light dark;--ink:#1d2329;--soft:#5c6670;--line:#d9dee3;--ground:#fff;
--panel:#f6f8fa;--link:#0b5cad;--bad:#b3261e;--mark:#fff6d6;
--c0:#2f6db5;--c1:#c2571a;--c2:#2c8a4b;--c3:#8a4fb0;--c4:#b3374d;--c5:#0f8a94;--c6:#8c6d14;--c7:#5c6670}
@media(prefers-color-scheme:dark){:root{--ink:#e4e8ec;--soft:#9aa5b0;--line:#39424b;
--ground:#14181c;--panel:#1c2228;--link:#77b4f2;--bad:#ff8a80;--mark:#3d3818;
--c0:#6ea8e8;--c1:#ef9a62;--c2:#6cc48a;--c3:#c596e6;--c4:#f08598;--c5:#58c7d0;--c6:#d3b257;--c7:#9aa5b0}}
*{box-sizing:border-box}
body{margin:0;font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--ground)}
header,section{padding:0 clamp(12px,3vw,32px)}
header{display:flex;flex-wrap:wrap;gap:0 1em;align-items:baseline;padding-top:18px}
h1{font-size:22px;margin:0}header p,.note{color:var(--soft);margin:4px 0}
.note{font-size:13px}
a{color:var(--link)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:12px 0 6px}
.legend span{display:inline-flex;align-items:center;gap:6px}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr));gap:14px}
figure{margin:0;padding:8px;background:var(--panel);border:1px solid var(--line);border-radius:8px}
figure svg{display:block;width:100%;height:auto}
svg text{font:12px system-ui,sans-serif;fill:var(--soft)}svg .axis{fill:var(--ink)}
@media(max-width:600px){figure svg text{font-size:18px}}
.grid{stroke:var(--line)}.front{fill:none;stroke:var(--soft);stroke-width:1.2;stroke-dasharray:4 3}
.mark{stroke:var(--panel);stroke-width:1}.plain{fill:var(--soft)}
a:focus .mark,a:hover .mark{stroke:var(--ink);stroke-width:2}
.c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}
.c4{fill:var(--c4)}.c5{fill:var(--c5)}.c6{fill:var(--c6)}.c7{fill:var(--c7)}
.wide{overflow-x:auto;margin:18px 0 40px}
table{border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;
white-space:nowrap}
th{background:var(--panel);padding:0}
th button{all:unset;cursor:pointer;padding:7px 10px;font-weight:600;display:block;width:100%;
box-sizing:border-box}
th button:focus-visible{outline:2px solid var(--link);outline-offset:-2px}
th[aria-sort=ascending] button::after{content:" \\25b2"}
th[aria-sort=descending] button::after{content:" \\25bc"}
.n{text-align:right}
tr:target td,tr.chosen td{background:var(--mark)}
.failed .result b{color:var(--bad);font-weight:600}
.result{white-space:normal;min-width:24em}.result details{display:inline}
.result summary{display:inline-block;cursor:pointer;color:var(--soft);max-width:22em;
overflow:hidden;text-overflow:ellipsis;white-space:nowrap;vertical-align:bottom}
.result pre{white-space:pre-wrap;font-size:12px;margin:6px 0}
#card{position:absolute;z-index:2;background:var(--ground);border:1px solid var(--line);
border-radius:8px;padding:8px 12px;box-shadow:0 4px 18px #0004;max-width:min(90vw,360px)}
#card[hidden]{display:none}#card b{display:block;margin-bottom:4px}#card a{margin-right:14px}
"""

SCRIPT = """
const rows=JSON.parse(document.getElementById("links").textContent);
const card=document.getElementById("card"),body=document.querySelector("tbody");
const close=()=>{card.hidden=true;for(const r of body.querySelectorAll(".chosen"))
  r.classList.remove("chosen")};
for(const point of document.querySelectorAll("a[data-row]"))
  point.addEventListener("click",event=>{
    event.preventDefault();event.stopPropagation();close();
    const i=point.dataset.row,row=rows[i];
    card.replaceChildren();
    card.append(Object.assign(document.createElement("b"),{textContent:row.name}));
    for(const [key,text] of [["program",".pte"],["report","report"]])
      if(row[key])card.append(Object.assign(document.createElement("a"),
        {href:row[key],textContent:text}));
    card.append(Object.assign(document.createElement("a"),
      {href:"#row"+i,textContent:"row"}));
    document.getElementById("row"+i).classList.add("chosen");
    card.hidden=false;
    const at=point.getBoundingClientRect();
    card.style.top=at.bottom+scrollY+6+"px";
    card.style.left=Math.max(8,Math.min(at.left,innerWidth-card.offsetWidth-8))+scrollX+"px";
    card.querySelector("a").focus({preventScroll:true});
  });
document.addEventListener("click",event=>{if(!card.contains(event.target))close()});
document.addEventListener("keydown",event=>{if(event.key==="Escape")close()});
document.querySelectorAll("th").forEach((head,column)=>
  head.querySelector("button").addEventListener("click",()=>{
    const up=head.getAttribute("aria-sort")!=="ascending",numeric=head.classList.contains("n");
    for(const other of document.querySelectorAll("th"))other.setAttribute("aria-sort","none");
    head.setAttribute("aria-sort",up?"ascending":"descending");
    const key=row=>{const c=row.children[column];return c.dataset.key??c.textContent};
    const missing=text=>text==="";
    const order=(a,b)=>{const x=key(a),y=key(b);
      if(missing(x)||missing(y))return missing(x)-missing(y);
      return (up?1:-1)*(numeric?x-y:x.localeCompare(y,undefined,{numeric:true}))};
    body.append(...[...body.children].sort(order));
  }));
"""
